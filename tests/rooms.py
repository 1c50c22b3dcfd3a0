"""The rooms of the house, and which rooms each may use: `test_architecture.py` holds the code against it.

A room is a folder without its sub-folders; at the roots a file is a room of its own. Rooms stand in the
order in which data flows: each uses rooms above it only, and its own sub-folders, to which it may dispatch.
To let a room use another one, add it to its row; a row that no import needs any more must go. Names are below
`memplan_engine`, but for those of the dashboard.
"""

from __future__ import annotations

ROOMS: dict[str, str] = {
    "kernels": "",
    "kernels.allocator": "kernels",
    "kernels.constructive": "kernels",
    "kernels.constructive.gap_tree": "kernels kernels.constructive",
    "kernels.exact": "kernels",
    "kernels.order": "kernels",
    "kernels.plotting": "kernels",
    "kernels.search": "kernels",
    "kernels.shared_objects": "kernels kernels.constructive",
    "kernels.verify": "kernels",
    "errors": "",
    "units": "errors",
    "system": "errors",
    "accelerators": "errors",
    "scope": "",
    "verdict": "scope",
    "graph": "errors scope",
    "callers": "kernels graph",
    "control_flow": "graph",
    "op_kinds": "graph",
    "schedule": "errors graph op_kinds",
    "problem": "errors scope graph callers schedule",
    "profile": "kernels.plotting graph problem",
    "lifetimes": "errors graph schedule problem",
    "bounds": "kernels kernels.plotting problem profile",
    "plan": "kernels.constructive system problem profile bounds",
    "verify": "kernels.verify problem bounds plan",
    "analysis": (
        "kernels.shared_objects errors units scope graph callers schedule problem profile lifetimes plan"
        " verdict"
    ),
    "calibration": "errors scope graph analysis",
    "strategies": "errors system problem bounds plan",
    "strategies.constructive": (
        "kernels.constructive kernels.constructive.gap_tree errors units graph "
        "problem profile plan strategies"
    ),
    "strategies.exact": ("kernels.exact problem bounds strategies strategies.constructive"),
    "strategies.search": (
        "kernels.search problem profile bounds strategies strategies.constructive strategies.exact"
    ),
    "strategies.shared_objects": (
        "kernels kernels.constructive kernels.shared_objects errors problem analysis "
        "strategies strategies.constructive"
    ),
    "planner": (
        "kernels kernels.constructive.gap_tree errors graph problem profile lifetimes bounds "
        "plan verify strategies strategies.constructive strategies.search"
    ),
    "diffing": "kernels errors units graph schedule problem profile plan analysis",
    "recordings": ("errors units scope verdict graph callers problem profile bounds plan strategies planner"),
    "allocator": "verdict kernels.allocator errors units accelerators problem recordings",
    "symbolic": (
        "kernels.shared_objects errors system scope graph schedule problem lifetimes bounds "
        "plan verify strategies planner"
    ),
    "replay": (
        "kernels kernels.constructive kernels.exact kernels.shared_objects errors "
        "units graph problem profile bounds plan verify analysis strategies "
        "strategies.constructive strategies.exact strategies.shared_objects planner"
    ),
    "rewrites": "errors graph schedule analysis",
    "rewrites.reuse": (
        "errors graph op_kinds schedule problem profile lifetimes bounds plan analysis strategies planner"
    ),
    "rewrites.order": (
        "kernels kernels.order errors graph control_flow op_kinds schedule problem strategies rewrites.reuse"
    ),
    "feasibility": "verdict errors units problem bounds plan analysis strategies planner",
    "what_if": "errors graph problem",
    "what_if.suggestions": (
        "verdict problem profile bounds plan strategies strategies.constructive feasibility what_if"
    ),
    "formats": "errors graph schedule problem plan recordings symbolic",
    "formats.allocator_files": ("errors scope graph callers problem recordings formats"),
    "formats.csv_tables": "errors system graph problem plan planner formats",
    "formats.memplan_json": (
        "errors system scope graph callers schedule problem bounds plan calibration recordings symbolic "
        "what_if formats"
    ),
    "formats.onnx_model": "errors units system graph symbolic formats",
    "torch_capture": "errors units system scope graph formats",
    "torch_capture.training": "errors graph analysis torch_capture",
    "files": "errors system graph problem plan recordings formats",
    "preparation": (
        "errors graph schedule problem lifetimes plan calibration planner symbolic rewrites rewrites.reuse "
        "rewrites.order formats formats.memplan_json"
    ),
    "advice": (
        "errors units system graph schedule problem profile lifetimes plan analysis strategies planner "
        "verdict rewrites rewrites.order rewrites.reuse what_if formats preparation"
    ),
    "fx_estimator": ("errors scope lifetimes formats.memplan_json torch_capture torch_capture.training"),
    "runtime": "errors system graph rewrites.order torch_capture torch_capture.training",
    "runtime.observer": (
        "errors callers recordings formats.allocator_files torch_capture torch_capture.training runtime"
    ),
    "runtime.calibrate": (
        "system calibration recordings torch_capture torch_capture.training runtime.observer"
    ),
    "runtime.recorder": (
        "kernels errors units system callers graph calibration recordings formats.memplan_json torch_capture "
        "torch_capture.training runtime runtime.observer runtime.calibrate"
    ),
    "runtime.ranks": (
        "errors system recordings formats.memplan_json torch_capture torch_capture.training runtime "
        "runtime.recorder"
    ),
    "runtime.serving": "errors recordings torch_capture runtime.ranks runtime.recorder",
    "runtime.slab": (
        "errors units system graph control_flow schedule problem lifetimes plan verify planner "
        "rewrites.reuse torch_capture runtime"
    ),
    "runtime.trial": (
        "errors units system scope graph schedule problem profile lifetimes plan analysis strategies "
        "recordings rewrites.order formats formats.memplan_json advice "
        "torch_capture torch_capture.training runtime runtime.observer runtime.slab"
    ),
    "runtime.static": (
        "errors units graph schedule problem lifetimes plan strategies planner "
        "torch_capture runtime runtime.slab runtime.trial"
    ),
    "devices": "verdict errors system accelerators allocator recordings",
    "plotting": ("kernels.plotting errors units system graph problem profile plan analysis"),
    "reporters": (
        "errors units scope graph callers problem profile lifetimes bounds plan verify analysis calibration "
        "verdict strategies strategies.constructive diffing recordings symbolic replay rewrites.reuse "
        "feasibility what_if what_if.suggestions formats.memplan_json preparation advice fx_estimator "
        "plotting"
    ),
    "reporters.allocator": "scope verdict units allocator recordings reporters",
    "reporters.devices": "verdict units accelerators devices recordings reporters",
    "reporters.fit": "verdict units graph analysis rewrites feasibility advice reporters",
    "reporters.html": ("errors units system problem profile plan verify analysis plotting reporters"),
    "warm_up": (
        "kernels problem profile bounds verify strategies planner diffing recordings allocator "
        "rewrites.order plotting"
    ),
    "cli": ("kernels errors units graph problem plan strategies recordings formats files preparation"),
    "cli.commands": (
        "verdict errors units system accelerators scope graph problem plan verify analysis calibration "
        "strategies planner diffing recordings allocator symbolic replay rewrites.reuse "
        "feasibility what_if what_if.suggestions formats formats.memplan_json torch_capture "
        "files preparation advice fx_estimator runtime runtime.observer runtime.calibrate runtime.ranks "
        "runtime.recorder runtime.serving runtime.slab runtime.trial devices plotting reporters "
        "reporters.allocator reporters.devices reporters.fit reporters.html cli"
    ),
    "memplan_dashboard": "",
    "memplan_dashboard.background": (
        "errors system graph problem lifetimes bounds plan strategies planner rewrites.order "
        "formats.memplan_json torch_capture torch_capture.training rewrites preparation advice runtime "
        "runtime.ranks runtime.trial"
    ),
    "memplan_dashboard.charts": (
        "units devices callers profile plan analysis strategies diffing recordings allocator symbolic "
        "rewrites.order formats.memplan_json advice plotting reporters"
    ),
    "memplan_dashboard.serving": "",
    "memplan_dashboard.launch": "errors memplan_dashboard.serving",
    "memplan_dashboard.plan_view": "analysis plotting",
    "memplan_dashboard.replay_view": "problem replay plotting",
    "memplan_dashboard.session": (
        "units accelerators allocator devices problem bounds plan analysis strategies planner recordings "
        "verdict symbolic rewrites.reuse feasibility what_if formats formats.allocator_files "
        "formats.memplan_json files rewrites preparation advice plotting warm_up "
        "memplan_dashboard.background memplan_dashboard.serving"
    ),
    "memplan_dashboard.widgets": (
        "units graph problem profile analysis strategies planner recordings symbolic rewrites.order "
        "verdict preparation advice plotting memplan_dashboard.background memplan_dashboard.charts "
        "memplan_dashboard.plan_view memplan_dashboard.session"
    ),
    "memplan_dashboard.notebook": (
        "plotting memplan_dashboard.plan_view memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.app": "memplan_dashboard.session",
    "memplan_dashboard.views": (
        "units graph profile analysis strategies replay rewrites.order files preparation plotting reporters "
        "memplan_dashboard.charts memplan_dashboard.plan_view memplan_dashboard.replay_view "
        "memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.diff": (
        "units analysis planner diffing plotting reporters memplan_dashboard.charts "
        "memplan_dashboard.plan_view memplan_dashboard.session "
        "memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.devices": (
        "units accelerators allocator devices recordings reporters.allocator reporters.devices "
        "memplan_dashboard.background verdict memplan_dashboard.charts "
        "memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.fit": (
        "verdict units accelerators analysis diffing formats.memplan_json preparation advice reporters "
        "reporters.fit memplan_dashboard.background memplan_dashboard.charts memplan_dashboard.session "
        "memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.inspect": (
        "verdict units accelerators scope callers analysis advice recordings allocator symbolic "
        "rewrites.reuse what_if "
        "what_if.suggestions formats.csv_tables formats.memplan_json fx_estimator plotting "
        "reporters reporters.allocator reporters.html memplan_dashboard.charts memplan_dashboard.plan_view "
        "memplan_dashboard.serving memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.pipeline": (
        "units accelerators devices recordings reporters.devices memplan_dashboard.charts "
        "memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.run": (
        "units strategies formats.memplan_json reporters memplan_dashboard.background "
        "memplan_dashboard.charts memplan_dashboard.session memplan_dashboard.widgets"
    ),
}
