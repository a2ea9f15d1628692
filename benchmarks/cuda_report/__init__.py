"""`nox -s cuda-report`: what nvcc makes of every CUDA kernel; it needs no GPU."""
