"""Steps before and after a method: `method` is the face, `steps` and `after` hold the steps, `scaled` is an engine."""
