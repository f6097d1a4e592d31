"""Jobs and their Kubernetes objects: every job gets its object, every object that voda runs gets its job.

In reading order: registrar (the loop), object_duties (what is to be done), adoption, creation,
companions (what an object needs beside itself).
"""
