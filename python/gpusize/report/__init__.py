"""What people see: terminal tables, live progress, plots, the page, JSON.

Nothing here measures or estimates; it reads what ``ReportSource`` offers and what estimates say of themselves.
"""
