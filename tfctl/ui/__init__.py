"""The page of `tfctl ui`: a read-only web server on the loopback address of this machine.

`server.py` listens, `access.py` decides who may read, `app.py` has the routes. The other modules turn what tfctl/jobs
returns into JSON. The page itself is in `static/`. This is the only package that imports starlette and uvicorn.
"""
