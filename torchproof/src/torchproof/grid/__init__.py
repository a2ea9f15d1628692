"""Wheels into torches: what is predicted, and what happens when each is loaded.

For wheels that anybody built. A wheel is installed with what it requires, but for torch, into a
folder of its own; each library, and the package with its smoke program, runs in a process of its
own in every torch.
"""
