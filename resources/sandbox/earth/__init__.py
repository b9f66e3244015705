"""A synthetic Earth: roads traced through invented terrain, drawn as street-level spherical panoramas."""
