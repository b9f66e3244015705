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
        super().__init__(f"{self.problem}. {self.fix}".strip() if self.fix else f"{self.problem}.")

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process boundaries (executors, pools); the default recipe would call the
        # subclass with the joined text and double the sentence.
        return (_rebuild, (type(self), self.problem, self.fix, self.__dict__))


def _rebuild(cls: type[GeoError], problem: str, fix: str, state: dict[str, object]) -> GeoError:
    error = cls.__new__(cls)
    GeoError.__init__(error, problem, fix)
    error.__dict__.update(state)
    return error
