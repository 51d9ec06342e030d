"""A stand-in for kubectl: ``port-forward`` really forwards TCP, and says what the real one says.

It writes its pid and its arguments into the folder that FORWARD_DIR names, and does what the file ``mode`` there says:
``forward`` (the default), ``refuse``: end at once with an error, ``lose``: say that the pod is lost and go on living.
"""

PROGRAM = r"""#!{python}
import os, pathlib, socket, sys, threading

folder = pathlib.Path(os.environ["FORWARD_DIR"])
mode = (folder / "mode").read_text() if (folder / "mode").exists() else "forward"
(folder / f"pid-{{os.getpid()}}").write_text("\n".join(sys.argv[1:]))
if mode == "refuse":
    sys.stderr.write('Error from server (NotFound): services "s" not found\x1b[1m\n')
    raise SystemExit(1)
local = int(sys.argv[-1].split(":")[0])
listener = socket.create_server(("127.0.0.1", local))
print(f"Forwarding from 127.0.0.1:{{local}} -> {{sys.argv[-1].split(':')[1]}}", flush=True)
if mode == "lose":
    (folder / "mode").write_text("forward")
    print("E1120 portforward.go:234] lost connection to pod", flush=True)

def pipe(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for side in (a, b):
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

while True:
    here, _ = listener.accept()
    there = socket.create_connection(("127.0.0.1", int((folder / "to").read_text())))
    threading.Thread(target=pipe, args=(here, there), daemon=True).start()
    threading.Thread(target=pipe, args=(there, here), daemon=True).start()
"""
