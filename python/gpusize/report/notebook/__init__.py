"""What a notebook shows of results, answers, plans and comparisons: HTML that stands between cells."""
