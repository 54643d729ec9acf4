"""What the Makefile, the tests, the benchmark and the examples need around them; not part of the package."""
