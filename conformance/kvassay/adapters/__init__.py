"""How engines are reached: in process, in a worker process, in another interpreter, or as any program."""
