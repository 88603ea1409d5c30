"""What benches/h200.py is made of: the records, the checks, and what Plancher is compared with."""
