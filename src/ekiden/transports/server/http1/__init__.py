"""HTTP/1.1 for one application: `connection` is a uvicorn protocol class, `exchange` one request on it."""
