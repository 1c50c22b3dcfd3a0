"""Which modules are mutated, and what has to notice."""

STREAMS = "tests/formats/test_json_stream.py tests/formats/test_profiler_timeline.py"
CSV = "tests/formats/test_csv_table.py tests/formats/test_import_csv.py"
BAD_FILES = "tests/formats/test_import_bad.py"
CERTIFICATES = "tests/verify/test_certificates.py"
NOT_AS_PYTHON = "--deselect=tests/verify/test_validate.py::test_one_overlap_among_300_000_buffers_is_found"
REUSE = " ".join(
    f"tests/rewrites/test_reuse_{name}.py"
    for name in ("check", "concat", "in_place", "judged", "places", "savings", "sound")
)
TESTS = {
    "memplan_engine.lifetimes": "tests/test_lifetimes.py tests/test_planner.py",
    "memplan_engine.bounds": "tests/test_bounds.py tests/verify",
    "memplan_engine.verify.validate": "tests/verify tests/strategies/test_shared_objects.py",
    "memplan_engine.verify.certificates": "tests/verify tests/test_bounds.py",
    "memplan_engine.kernels.verify.recheck": f"tests/kernels/test_recheck.py {CERTIFICATES}",
    "memplan_engine.kernels.verify.sweep": f"tests/verify/test_validate.py {NOT_AS_PYTHON}",
    "memplan_engine.rewrites.order.check_reorder": (
        "tests/rewrites/test_reorder_check.py tests/rewrites/test_reorder.py"
    ),
    "memplan_engine.rewrites.reuse.check_reuse": REUSE,
    "memplan_engine.rewrites.reuse.breaches": REUSE,
    "memplan_engine.runtime.trial.safety": "tests/runtime/test_runtime_safety.py",
    "memplan_engine.formats.read_limits": f"tests/formats/test_import_csv.py {BAD_FILES}",
    "memplan_engine.formats.json_stream": STREAMS,
    "memplan_engine.formats.csv_tables.csv_table": f"{CSV} {BAD_FILES}",
    "memplan_engine.formats.csv_tables.csv_reader": f"{CSV} {BAD_FILES}",
}
BY_HAND = {
    "memplan_engine.lifetimes": [
        ("alignment < 1", "alignment < 2"),
        ("(*op.inputs, *op.mutates, *op.outputs)", "(*op.inputs, *op.outputs)"),
        ("schedule.steps - 1 for name in kept", "schedule.steps - 2 for name in kept"),
    ],
    "memplan_engine.bounds": [
        ("begin = -(-holes[0] // unit) * unit", "begin = holes[0]"),
        ("room >= smallest", "room > smallest"),
    ],
    "memplan_engine.verify.certificates": [
        ("int(sum(units) - max(spare, default=0))", "int(sum(units))"),
        ("gap.start <= step < gap.end", "gap.start <= step <= gap.end"),
        ("min(bound.nbytes - 1, enough)", "min(bound.nbytes, enough)"),
        ("start < their_end and", "start <= their_end and"),
    ],
    "memplan_engine.verify.validate": [
        ("(offsets <= np.iinfo(", "(offsets < np.iinfo("),
        ("offsets >= 0", "offsets > 0"),
        ("np.concatenate([end, start])", "np.concatenate([start, end])"),
        ("problem.start[other] < problem.end[one]", "problem.start[other] <= problem.end[one]"),
        ("low[chosen] < high[reach]", "low[chosen] <= high[reach]"),
    ],
    "memplan_engine.rewrites.order.check_reorder": [
        ("(self.writes[first] | self.writes[second])", "self.writes[first]"),
        ("if nbytes > facts.nbytes.get(storage, 0)", "if nbytes > 2 * facts.nbytes.get(storage, 0)"),
        ("(nbytes < 0 and not may_begin)", "(nbytes < -1 and not may_begin)"),
        ("arrived < needed", "arrived + 1 < needed"),
        ("(end, other) if proof.is_first else", "(end, other) if not proof.is_first else"),
        ("== len(ops) > 0 or not", "== len(ops) or not"),
    ],
    "memplan_engine.rewrites.reuse.check_reuse": [
        ("if copies is None or name in op.mutates:", "if copies is None:"),
        ("(*op.inputs, *op.mutates)", "op.inputs"),
    ],
    "memplan_engine.rewrites.reuse.breaches": [
        ("if offsets is None or target in op.mutates:", "if offsets is None:"),
        ("<= {*one.mutates, *one.inputs}", "<= {*one.mutates, *one.inputs, *one.outputs}"),
    ],
    "memplan_engine.runtime.trial.safety": [
        ("if region.end <= step]", "if region.end < step]"),
        ("            if low < high:", "            if low <= high:"),
    ],
    "memplan_engine.formats.read_limits": [
        ("size > limit", "size >= limit"),
    ],
    "memplan_engine.formats.json_stream": [
        ("len(data) > limit", "len(data) >= limit"),
    ],
    "memplan_engine.formats.csv_tables.csv_table": [
        ('int(digits or "0") > MAX_BYTES', 'int(digits or "0") >= MAX_BYTES'),
        ("len(digits) > 19", "len(digits) > 18"),
    ],
    "memplan_engine.formats.csv_tables.csv_reader": [
        ("offsets > MAX_BYTES - problem.size", "offsets >= MAX_BYTES - problem.size"),
        ("max(numbers) > MAX_BYTES - inclusive", "max(numbers) >= MAX_BYTES - inclusive"),
    ],
}
"""What stands in the source, and what stands there in the mutant."""
