"""Everything a user looks at: terminal tables, live progress, plots, the page, and machine-readable output.

Nothing here measures or estimates; it reads what ``ReportSource`` offers and what estimates say of themselves.
"""
