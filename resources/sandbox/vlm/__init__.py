"""The sandbox's stand-in for a Hub model: a tiny vision-language model of the Qwen3.5 architecture."""
