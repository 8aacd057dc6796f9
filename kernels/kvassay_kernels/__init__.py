"""GPU kernels over the reference's interfaces; the package holds none yet."""
