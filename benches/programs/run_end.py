"""What ``gpusize run`` does after its last level: estimates, files, figures, the page, and what it prints."""

import sys

from gpusize.cli.shared import print_result
from gpusize.result import open_run

result = open_run(sys.argv[1])
estimates = result.estimates() if result.can_estimate else []
page = result.report()
print_result(result, estimates[:1], [result.path, page])
