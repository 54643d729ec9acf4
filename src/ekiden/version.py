"""The version of ekiden, which is written here and nowhere else."""

__version__ = "0.1.0"
