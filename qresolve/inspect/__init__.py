"""What a wheel, a library or a cubin holds for the GPU, and whether a format has a native kernel in it."""
