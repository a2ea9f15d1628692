"""Which GPUs and which CUDA run-time it is for."""

from torchproof.audit.architectures import images_of
from torchproof.audit.outcome import Outcome, Subject, judged, listed, not_run
from torchproof.audit.policy import CPU


def cuda_runtime(subject: Subject) -> Outcome:
    """Its libcudart is the one of the CUDA release it is for."""
    major, cuda = subject.facts.cuda_major, subject.policy.cuda
    shared = f"libcudart.so.{subject.facts.cuda_runtime}"
    found = shared if subject.facts.cuda_runtime else f"CUDA {major}, linked in"
    found = found if major else "no CUDA"
    if cuda is None:
        return not_run(found, "no CUDA release is declared")
    if cuda == CPU:
        return judged(major is None, found, "none: the row is for CPU")
    holds = major is None or major == int(cuda.split(".")[0])
    return judged(holds, found, f"CUDA {cuda}")


def cuda_architectures(subject: Subject) -> Outcome:
    """Its device code is for the architectures declared, no fewer and no more."""
    found, declared = subject.facts.cuda_images, subject.policy.cuda_architectures
    text = ", ".join(found) or "no device code"
    if declared is None:
        return not_run(text, "no architectures are declared")
    if not found and any(facts.cuda_images for _, facts in subject.others):
        return not_run(text, "another library of the package has it")
    wanted = images_of(declared)
    lost = [f"{name} is missing" for name in wanted if name not in found]
    extra = [f"{name} is not declared" for name in found if name not in wanted]
    expected = ", ".join(wanted) or "none"
    return judged(not lost and not extra, listed([*lost, *extra]) or text, expected)
