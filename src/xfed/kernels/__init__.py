"""Faster kernels than torch's for a few layers, on the CPU: optional, chosen once per run and recorded with it."""
