"""Building blocks of constructed machines: each writes what the kernel and the drivers would show of it."""
