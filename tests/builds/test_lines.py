"""Lines of a TOML text."""

from holdfast.builds.lines import line_of, lines

TEXT = '''# a comment [not.a.table]
env = { A = "[x]", "B c" = """
two
lines""" }

[steps.compile]  # another
run = [
    "make", # with ] in a comment
    """
    echo ["]
    """,

    'it''s' , 3
]
steps = 1
[ steps . "a.b" ]
outputs.report = 'x'
outputs.other = { deep = [ { x = 1 },
  { y = 2 } ] }

[[many]]
name = 1
'''.replace("'it''s'", "'its'")


def test_every_key_and_element_has_its_line() -> None:
    found = lines(TEXT)
    assert {place: line for place, line in found.items() if len(place) > 1 or place in (("env",), ("many",))} == {
        ("env",): 2,
        ("env", "A"): 2,
        ("env", "B c"): 2,
        ("steps", "compile"): 6,
        ("steps", "compile", "run"): 7,
        ("steps", "compile", "run", "0"): 8,
        ("steps", "compile", "run", "1"): 9,
        ("steps", "compile", "run", "2"): 13,
        ("steps", "compile", "run", "3"): 13,
        ("steps", "compile", "steps"): 15,
        ("steps", "a.b"): 16,
        ("steps", "a.b", "outputs"): 17,
        ("steps", "a.b", "outputs", "report"): 17,
        ("steps", "a.b", "outputs", "other"): 18,
        ("steps", "a.b", "outputs", "other", "deep"): 18,
        ("steps", "a.b", "outputs", "other", "deep", "0"): 18,
        ("steps", "a.b", "outputs", "other", "deep", "0", "x"): 18,
        ("steps", "a.b", "outputs", "other", "deep", "1"): 19,
        ("steps", "a.b", "outputs", "other", "deep", "1", "y"): 19,
        ("many",): 21,
        ("many", "name"): 22,
    }


def test_what_has_no_line_has_that_of_what_is_around_it() -> None:
    found = lines(TEXT)
    assert line_of(found, ("steps", "compile", "run", "9")) == 7
    assert line_of(found, ("nowhere", "at", "all")) == 1


def test_line_ends_of_another_system_are_line_ends() -> None:
    assert lines("a = 1\r\nb = 2\r\n")[("b",)] == 2
