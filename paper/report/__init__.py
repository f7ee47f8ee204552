"""The report: tables, curves and attention maps as one page."""
