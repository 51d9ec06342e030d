"""Debian's nginx as a process of ours: own configuration, own folder, loopback, a port that was free."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

__all__ = ["NGINX", "Nginx"]

# It lies in sbin, which a user's PATH may lack.
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

# A test run that is killed must not leave servers behind.
_SETPRIV = shutil.which("setpriv")
_ENDS_WITH_US = [_SETPRIV, "--pdeathsig", "TERM", "--"] if _SETPRIV else []

CONFIG = """
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    types {{ text/plain txt; application/json json; application/octet-stream bin; }}
    default_type application/octet-stream;
{http}
    server {{
        listen 127.0.0.1:{port}{how};
        server_name localhost;
{server}
    }}
}}
"""


class Nginx:
    """A running nginx; a context manager.

    Args:
        folder: an empty folder for its configuration, log and temporary files.
        server: the directives inside its ``server`` block.
        ssl: whether it speaks TLS; ``server`` then names the certificate.
        http2: whether it speaks HTTP/2: over TLS besides HTTP/1.1, in the clear nothing else.
        http: the directives beside that block, as ``upstream``.
        prefix: words before the command, to pin it to a core for instance.
    """

    def __init__(
        self,
        folder: Path,
        server: str,
        *,
        ssl: bool = False,
        http2: bool = False,
        http: str = "",
        prefix: Sequence[str] = (),
    ) -> None:
        if NGINX is None:
            raise FileNotFoundError("nginx is not installed: apt-get install nginx")
        self.folder = folder
        config = folder / "nginx.conf"
        # The socket is bound here and inherited (nginx's own way to upgrade itself), so no other process can take the
        # port, and a client that connects before nginx is ready waits in the backlog.
        with socket.create_server(("127.0.0.1", 0), backlog=511) as listener:
            self.port: int = listener.getsockname()[1]
            # A worker of another user could not read files below a folder of ours.
            user = "user root;" if os.geteuid() == 0 else ""
            how = " ssl" * ssl + " http2" * http2
            text = CONFIG.format(folder=folder, port=self.port, server=server, how=how, user=user, http=http)
            config.write_text(text, encoding="utf-8")
            self._process = subprocess.Popen(
                [*_ENDS_WITH_US, *prefix, NGINX, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")],
                env={**os.environ, "NGINX": f"{listener.fileno()};"},
                pass_fds=[listener.fileno()],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def log(self) -> str:
        """What nginx wrote to its error log."""
        path = self.folder / "error.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def close(self) -> None:
        """End it and wait for its end."""
        self._process.terminate()
        self._process.wait(timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
