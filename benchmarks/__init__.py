"""Benchmarks: one file per question; floor and peers measured in the same run."""
