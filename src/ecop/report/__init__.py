"""Results of the benchmark as tables, pictures and one page."""
