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
    "kernels.banks": "kernels",
    "kernels.constructive": "kernels",
    "kernels.constructive.gap_tree": "kernels kernels.constructive",
    "kernels.exact": "kernels",
    "kernels.order": "kernels",
    "kernels.recompute": "kernels kernels.order",
    "kernels.offload": "kernels",
    "kernels.plotting": "kernels",
    "kernels.search": "kernels",
    "kernels.shared_objects": "kernels kernels.constructive",
    "kernels.verify": "kernels",
    "errors": "",
    "units": "errors",
    "system": "errors",
    "accelerators": "errors",
    "scope": "",
    "graph": "errors scope",
    "callers": "kernels graph",
    "op_kinds": "graph",
    "schedule": "errors graph op_kinds",
    "banks": "kernels errors units",
    "problem": "errors scope graph callers schedule banks",
    "profile": "kernels.plotting graph problem",
    "lifetimes": "errors graph schedule problem",
    "bounds": "kernels kernels.plotting problem profile",
    "plan": "kernels.constructive system problem profile bounds",
    "banked": "kernels errors graph op_kinds banks problem plan",
    "verify": "kernels kernels.verify graph op_kinds banks problem bounds plan banked",
    "analysis": (
        "kernels.shared_objects errors units accelerators scope graph op_kinds callers schedule problem "
        "profile lifetimes plan"
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
    "executorch": "errors problem plan strategies planner",
    "diffing": "kernels errors units graph schedule problem profile plan analysis",
    "recordings": ("errors units scope graph callers problem profile bounds plan strategies planner"),
    "allocator": "kernels.allocator errors units accelerators problem recordings",
    "symbolic": (
        "kernels.shared_objects errors system scope graph schedule problem lifetimes bounds "
        "plan verify strategies planner"
    ),
    "replay": (
        "kernels kernels.constructive kernels.exact kernels.shared_objects errors "
        "units graph problem profile bounds plan verify analysis strategies "
        "strategies.constructive strategies.exact strategies.shared_objects planner"
    ),
    "rewrites": "errors graph schedule",
    "rewrites.reuse": (
        "errors graph op_kinds schedule problem profile lifetimes bounds plan analysis strategies planner"
    ),
    "rewrites.order": (
        "kernels kernels.order errors graph op_kinds schedule problem strategies rewrites.reuse"
    ),
    "rewrites.chunk": "errors graph op_kinds problem schedule rewrites.reuse",
    "rewrites.recompute": (
        "kernels kernels.order kernels.recompute errors graph op_kinds schedule problem analysis strategies "
        "rewrites.order rewrites.reuse"
    ),
    "rewrites.offload": (
        "kernels kernels.offload kernels.order kernels.recompute errors graph op_kinds problem schedule "
        "strategies rewrites.order rewrites.recompute"
    ),
    "feasibility": "errors problem bounds plan strategies planner",
    "spilling": (
        "kernels kernels.banks kernels.search errors problem profile bounds plan banked strategies "
        "strategies.constructive strategies.search planner feasibility"
    ),
    "spilling.moves": (
        "kernels kernels.banks errors graph op_kinds schedule banks problem bounds plan banked verify "
        "strategies feasibility spilling"
    ),
    "what_if": "errors graph banks problem",
    "what_if.suggestions": (
        "problem profile bounds plan strategies strategies.constructive feasibility what_if"
    ),
    "formats": "errors graph schedule problem plan recordings symbolic",
    "formats.allocator_files": "errors system scope graph callers problem recordings formats",
    "formats.csv_tables": "errors system graph banks problem plan banked planner formats",
    "formats.memplan_json": (
        "errors system scope graph callers schedule banks problem bounds plan banked analysis calibration "
        "recordings symbolic what_if formats"
    ),
    "formats.c_code": "errors system units plan banked formats.memplan_json",
    "formats.tflite_model": "errors system graph problem plan planner formats",
    "formats.executorch_program": "errors graph problem plan planner formats",
    "formats.onnx_model": "errors system graph schedule plan formats",
    "formats.xla_dump": "errors graph lifetimes plan planner formats",
    "formats.memplan_json.banks": "errors problem plan banked formats.memplan_json",
    "torch_capture": "errors units system scope graph analysis formats",
    "torch_capture.training": "errors graph analysis rewrites.recompute torch_capture",
    "jax_capture": "errors graph plan formats.xla_dump torch_capture",
    "files": "errors system graph problem plan banked recordings formats",
    "preparation": (
        "errors graph schedule problem lifetimes plan calibration planner symbolic rewrites rewrites.reuse "
        "rewrites.order formats formats.memplan_json"
    ),
    "fitting": (
        "kernels kernels.recompute errors units graph op_kinds schedule profile plan analysis strategies "
        "planner rewrites rewrites.chunk rewrites.order rewrites.recompute rewrites.offload rewrites.reuse "
        "feasibility preparation"
    ),
    "advice": (
        "errors units system graph schedule problem profile lifetimes plan analysis strategies planner "
        "rewrites rewrites.reuse what_if formats preparation fitting"
    ),
    "fx_estimator": ("errors scope lifetimes formats.memplan_json torch_capture torch_capture.training"),
    "runtime": (
        "errors system graph op_kinds calibration recordings rewrites.order rewrites.recompute "
        "rewrites.offload rewrites.chunk formats.memplan_json torch_capture torch_capture.training"
    ),
    "runtime.observer": (
        "errors callers recordings formats.allocator_files torch_capture torch_capture.training runtime"
    ),
    "runtime.calibrate": (
        "system calibration recordings torch_capture torch_capture.training runtime.observer"
    ),
    "runtime.recorder": (
        "kernels errors units system callers graph calibration recordings torch_capture "
        "torch_capture.training runtime runtime.observer runtime.calibrate"
    ),
    "runtime.scripts": (
        "errors system graph calibration recordings formats.memplan_json torch_capture "
        "torch_capture.training runtime runtime.recorder"
    ),
    "runtime.ranks": (
        "errors recordings formats.memplan_json torch_capture torch_capture.training runtime "
        "runtime.recorder runtime.scripts"
    ),
    "runtime.serving": "errors recordings torch_capture runtime.ranks runtime.recorder runtime.scripts",
    "runtime.slab": (
        "errors units system graph op_kinds schedule lifetimes plan verify rewrites.recompute "
        "rewrites.offload rewrites.chunk rewrites.reuse torch_capture runtime"
    ),
    "runtime.compiling": (
        "errors units accelerators graph op_kinds analysis strategies rewrites.order rewrites.recompute "
        "rewrites.reuse torch_capture torch_capture.training runtime runtime.slab"
    ),
    "runtime.trial": (
        "errors units system scope graph op_kinds schedule problem profile lifetimes plan analysis "
        "strategies recordings rewrites.chunk rewrites.order formats formats.memplan_json advice "
        "torch_capture torch_capture.training runtime runtime.observer runtime.recorder runtime.slab"
    ),
    "runtime.static": (
        "errors units graph schedule problem lifetimes plan strategies planner "
        "torch_capture runtime runtime.slab runtime.trial"
    ),
    "devices": "errors system accelerators allocator recordings",
    "history": (
        "errors units graph lifetimes plan verify analysis strategies planner diffing recordings formats "
        "formats.memplan_json torch_capture files preparation runtime.scripts"
    ),
    "history.database": "errors system graph history",
    "history.database.migrations": "",
    "history.git": "errors runtime history",
    "zoo": (
        "errors units system accelerators graph strategies recordings symbolic formats.memplan_json "
        "torch_capture files preparation runtime runtime.scripts runtime.ranks devices history "
        "history.database history.git"
    ),
    "checks": (
        "errors units system graph plan analysis diffing allocator formats.memplan_json torch_capture "
        "torch_capture.training files preparation runtime.recorder runtime.scripts history history.git"
    ),
    "plotting": "kernels.plotting errors units system graph problem profile plan banked analysis",
    "reporters": (
        "errors units scope graph callers problem profile lifetimes bounds plan verify analysis calibration "
        "strategies strategies.constructive diffing recordings symbolic replay rewrites.reuse "
        "feasibility what_if what_if.suggestions formats.memplan_json preparation advice fx_estimator "
        "plotting"
    ),
    "reporters.banks": ("units banked verify analysis feasibility spilling spilling.moves what_if reporters"),
    "reporters.allocator": "units allocator recordings reporters",
    "reporters.checks": "errors units system diffing checks reporters",
    "reporters.devices": "units accelerators allocator devices recordings reporters",
    "reporters.fit": "units graph profile analysis rewrites feasibility fitting advice reporters",
    "reporters.zoo": "units history zoo reporters",
    "pytest_plugin": (
        "errors units system plan analysis formats.memplan_json torch_capture preparation history checks "
        "reporters.checks"
    ),
    "reporters.history": "units history reporters",
    "reporters.html": (
        "errors units system problem profile plan verify analysis history plotting reporters "
        "reporters.history"
    ),
    "warm_up": (
        "kernels problem profile bounds verify strategies planner diffing recordings allocator "
        "rewrites.order rewrites.offload rewrites.recompute plotting"
    ),
    "cli": (
        "kernels errors units graph banks problem plan banked verify strategies recordings formats "
        "formats.c_code formats.memplan_json files preparation"
    ),
    "cli.commands.history": (
        "errors units system strategies diffing recordings formats files preparation history "
        "history.database history.git reporters reporters.history reporters.html cli"
    ),
    "cli.commands": (
        "errors units system accelerators scope graph op_kinds banks problem plan banked verify analysis "
        "calibration strategies planner diffing recordings allocator symbolic replay rewrites.reuse "
        "feasibility what_if what_if.suggestions formats formats.allocator_files formats.memplan_json "
        "torch_capture jax_capture files preparation fitting advice fx_estimator runtime runtime.observer "
        "runtime.calibrate runtime.ranks runtime.recorder runtime.scripts runtime.serving runtime.slab "
        "runtime.trial devices history plotting reporters reporters.banks reporters.allocator "
        "reporters.devices reporters.fit reporters.html cli"
    ),
    "cli.commands.banks": (
        "errors problem banked strategies spilling spilling.moves what_if files reporters.banks cli "
        "cli.commands"
    ),
    "cli.commands.zoo": "errors system history history.git zoo reporters.zoo cli",
    "cli.commands.checks": "errors system diffing files preparation checks reporters.checks cli",
    "github_action": "kernels errors system diffing history.git checks reporters.checks warm_up cli",
    "memplan_dashboard": "",
    "memplan_dashboard.background": (
        "errors system accelerators graph schedule problem lifetimes bounds plan analysis strategies "
        "planner rewrites.order rewrites.chunk rewrites.recompute formats.memplan_json torch_capture "
        "torch_capture.training rewrites preparation fitting runtime runtime.ranks runtime.trial history "
        "history.git reporters.history"
    ),
    "memplan_dashboard.charts": (
        "units devices callers profile plan analysis strategies diffing recordings allocator symbolic "
        "rewrites.order feasibility formats.memplan_json fitting plotting reporters"
    ),
    "memplan_dashboard.serving": "",
    "memplan_dashboard.launch": "errors memplan_dashboard.serving",
    "memplan_dashboard.plan_view": "analysis plotting",
    "memplan_dashboard.replay_view": "problem replay plotting",
    "memplan_dashboard.session": (
        "units accelerators diffing allocator devices problem bounds plan analysis strategies planner "
        "recordings symbolic rewrites.reuse feasibility what_if formats formats.allocator_files "
        "formats.memplan_json files rewrites preparation fitting advice history history.database plotting "
        "reporters reporters.history warm_up memplan_dashboard.background memplan_dashboard.serving"
    ),
    "memplan_dashboard.widgets": (
        "units accelerators graph problem profile lifetimes analysis strategies planner recordings symbolic "
        "rewrites.order rewrites.recompute preparation advice plotting memplan_dashboard.background "
        "memplan_dashboard.charts memplan_dashboard.plan_view memplan_dashboard.session"
    ),
    "memplan_dashboard.notebook": (
        "plotting memplan_dashboard.plan_view memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.app": "memplan_dashboard.session",
    "memplan_dashboard.views": (
        "units graph profile analysis strategies replay rewrites.order rewrites.recompute files preparation "
        "plotting reporters memplan_dashboard.charts memplan_dashboard.plan_view "
        "memplan_dashboard.replay_view memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.diff": (
        "units analysis planner diffing plotting reporters memplan_dashboard.charts "
        "memplan_dashboard.plan_view memplan_dashboard.session "
        "memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.devices": (
        "units accelerators allocator devices recordings reporters.devices memplan_dashboard.background "
        "memplan_dashboard.charts memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.fit": (
        "units accelerators graph op_kinds analysis diffing rewrites.offload feasibility "
        "formats.memplan_json preparation fitting advice rewrites.recompute reporters reporters.fit "
        "memplan_dashboard.background memplan_dashboard.charts memplan_dashboard.session "
        "memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.history": (
        "units diffing history history.git plotting reporters.history memplan_dashboard.background "
        "memplan_dashboard.charts memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.inspect": (
        "units accelerators scope callers analysis advice recordings allocator symbolic rewrites.reuse "
        "what_if what_if.suggestions formats.csv_tables formats.memplan_json fx_estimator plotting "
        "reporters reporters.banks reporters.allocator reporters.html memplan_dashboard.charts "
        "memplan_dashboard.plan_view memplan_dashboard.serving memplan_dashboard.session "
        "memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.pipeline": (
        "units accelerators devices recordings reporters.devices memplan_dashboard.charts "
        "memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.run": (
        "units strategies formats.memplan_json reporters memplan_dashboard.background "
        "memplan_dashboard.charts memplan_dashboard.session memplan_dashboard.widgets"
    ),
    "memplan_dashboard.views.zoo": (
        "units preparation history zoo memplan_dashboard.session memplan_dashboard.widgets"
    ),
}
