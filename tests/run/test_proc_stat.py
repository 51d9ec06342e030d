from __future__ import annotations

import os
import subprocess
import sys

from gpusize.base.procfs import parent_of, start_ticks

NAMED = "import sys; open('/proc/self/comm', 'w').write('a) Z (b c'); print('up', flush=True); sys.stdin.read()"


def test_a_programs_name_may_hold_anything():
    with subprocess.Popen([sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert parent_of(child.pid) == os.getpid()
        assert start_ticks(child.pid) >= start_ticks(os.getpid()) > 0
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # It has ended, and nobody has asked how.
        assert start_ticks(child.pid) == 0
    assert (parent_of(child.pid), start_ticks(child.pid)) == (None, 0)
