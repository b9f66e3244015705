"""The one exception a user is meant to read: what is wrong, and what to type or change next."""


class GeoError(Exception):
    """A fault its reader can mend.

    Args:
        problem: one sentence that names the file, line, asset or variable at fault.
        fix: the next command to type or the change to make; may be empty where nothing can be done.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        self.problem = problem.rstrip().rstrip(".")
        self.fix = fix.strip()
        super().__init__(joined(self.problem, self.fix))

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process boundaries (executors, pools); the default recipe would call the
        # subclass with the joined text and double the sentence.
        return (_rebuild, (type(self), self.problem, self.fix, self.__dict__))


def joined(problem: str, fix: str) -> str:
    """One sentence and what to do about it, as a reader sees them.

    What enters content, or is read by a model, calls this by name: code versions follow it there, and they do
    not follow `GeoError`, which nearly everything raises.
    """
    return f"{problem}. {fix}".strip() if fix else f"{problem}."


def _rebuild(cls: type[GeoError], problem: str, fix: str, state: dict[str, object]) -> GeoError:
    error = cls.__new__(cls)
    GeoError.__init__(error, problem, fix)
    error.__dict__.update(state)
    return error
