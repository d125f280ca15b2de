"""Guards taken out one at a time: each must turn the test of its rule red. README.md says how to add one."""
