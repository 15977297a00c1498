"""embedded_text: text files as string constants in a header, so that a binary needs no files beside it."""

def embedded_text(name, files):
    """Writes name.inc with one raw string literal for each file.

    Args:
      name: of the target; name.inc is its output.
      files: label of a file -> name of its constant. No file may contain the literal's end, )~~~~".
    """
    lines = []
    for label, constant in files.items():
        lines.append("printf 'inline constexpr char %s[] = R\"~~~~('; cat $(location %s); printf ')~~~~\";\\n'" %
                     (constant, label))
    native.genrule(
        name = name,
        srcs = files.keys(),
        outs = [name + ".inc"],
        cmd = "{ %s; } > $@" % "; ".join(lines),
    )
