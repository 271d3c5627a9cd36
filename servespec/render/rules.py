"""Every rule of every stage, in the order of its code."""

from servespec.compiler import command_rules, plan_rules
from servespec.diagnostics import Rule
from servespec.runtime import config_rules, run_rules
from servespec.runtime.bench import bench_rules
from servespec.schema import source_rules, spec_rules


def every_rule() -> tuple[Rule, ...]:
    """The rules of all tables, sorted by code."""
    tables = (source_rules, spec_rules, command_rules, plan_rules, config_rules, run_rules, bench_rules)
    return tuple(sorted((rule for table in tables for rule in table.RULES), key=lambda rule: rule.code))
