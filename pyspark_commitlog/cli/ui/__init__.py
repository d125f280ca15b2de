"""The read-only web page of `commitlog ui`, on Starlette and uvicorn: extra `ui`."""
