"""The benchmark: every table and figure of the paper from one command.

`suites.py` says what is run, `run.py` runs it, `report.py` shows what came out; in
between lies one folder of plain files (`results.py`).
"""
