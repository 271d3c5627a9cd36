"""Every rule of every stage, in the order of its code."""

from servespec.compiler import command_rules, plan_rules
from servespec.diagnostics import Rule
from servespec.runtime import config_rules, run_rules, step_times_rules
from servespec.runtime.bench import bench_rules
from servespec.schema import source_rules, spec_rules


def every_rule() -> tuple[Rule, ...]:
    """The rules of all tables, sorted by code."""
    runtime = (config_rules, run_rules, bench_rules, step_times_rules)
    tables = (source_rules, spec_rules, command_rules, plan_rules, *runtime)
    return tuple(sorted((rule for table in tables for rule in table.RULES), key=lambda rule: rule.code))
