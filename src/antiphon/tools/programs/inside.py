"""The cell that runs a JavaScript program inside a sandbox, once, from its beginning.

It is sent to the interpreter of the sandbox as source; the gateway never imports it. A program is
replayed: it gets the results of the calls that it made before, in the batches in which it made
them, so that it makes the same calls in the same order. It cannot tell a replay from a first run:
time and random numbers are fixed, and no result arrives before the program waits for all calls of
its batch. What comes out is one line of JSON.

    | state    | has                                                                  |
    |----------|----------------------------------------------------------------------|
    | done     | the output                                                           |
    | waiting  | the calls that have no result yet                                    |
    | failed   | the error: of the syntax, of the program, or of its replay           |
"""

from __future__ import annotations

import importlib.util
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["main"]

LIBRARY = "/mnt/quickjs.abi3.so"
_OTHER_CALLS = "it does not make the calls that it made before"

PRELUDE = r"""
(() => {
  "use strict";
  const pending = [], output = [];
  const stringify = JSON.stringify, parse = JSON.parse;
  const state = {status: "waiting", error: ""};
  const show = (value) => typeof value === "string" ? value : (stringify(value) ?? String(value));
  const describe = (error) => error instanceof Error
    ? `${error.name}: ${error.message}` : `Error: ${show(error)}`;
  const call = (name) => (args = {}) => new Promise((resolve, reject) => {
    if (args === null || typeof args !== "object" || Array.isArray(args))
      throw new TypeError(`call tools.${name} with one object`);
    pending.push({name, arguments: stringify(args), resolve, reject});
  });
  const made = {};
  for (const name of NAMES) made[name] = call(name);
  globalThis.tools = new Proxy(Object.freeze(made), {
    get(target, name) {
      if (typeof name === "symbol" || Object.hasOwn(target, name)) return target[name];
      throw new ReferenceError(`there is no tool ${String(name)}`);
    },
  });
  const text = (...values) => {
    output.push({type: "text", text: values.map(show).join(" ")});
  };
  globalThis.text = text;
  globalThis.image = (url) => { output.push({type: "image", url: String(url)}); };
  let seed = 1;
  Math.random = () => { seed = (seed * 16807) % 2147483647; return seed / 2147483647; };
  const RealDate = Date;
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, args) => new target(...(args.length ? args : [0])),
    apply: () => new RealDate(0).toString(),
    get: (target, name) => name === "now" ? () => 0 : Reflect.get(target, name),
  });
  RealDate.prototype.constructor = globalThis.Date;
  for (const name of ["performance", "WeakRef", "FinalizationRegistry", "SharedArrayBuffer",
                      "Atomics", "navigator", "gc", "queueMicrotask"]) delete globalThis[name];
  const begin = (code) => {
    const AsyncFunction = (async () => {}).constructor;
    new AsyncFunction(`"use strict";\n${code}`)().then(
      (value) => { if (value !== undefined) text(value); state.status = "done"; },
      (error) => { state.status = "failed"; state.error = describe(error); });
  };
  const answer = (results) => {
    pending.splice(0).forEach((one, index) => {
      if (results[index].is_error) one.reject(new Error(show(results[index].value)));
      else one.resolve(results[index].value);
    });
  };
  const report = () => ({...state, output,
    calls: pending.map((one) => ({name: one.name, arguments: one.arguments}))});
  const doing = {begin, answer, report};
  return (what, given) => stringify(doing[what](parse(given))) ?? "";
})()
"""


def main(request: str) -> None:
    """Run a program as far as the recorded results reach, and print its state."""
    given = json.loads(request)
    try:
        state = _run(given)
    except Exception as error:  # noqa: BLE001 - the engine raises its own type, for any fault
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        state = {"status": "failed", "error": why, "output": [], "calls": []}
    print(json.dumps(state))  # noqa: T201 - its only way out


def _run(given: dict[str, Any]) -> dict[str, Any]:
    quickjs = _load()
    context = quickjs.Context()
    context.set_memory_limit(given["memory_bytes"])
    context.set_max_stack_size(256 * 1024)
    prelude = PRELUDE.replace("NAMES", json.dumps(given["names"]))
    host = _Host(context, context.eval(prelude))
    host.do("begin", given["code"])
    return _replay(host, given["records"], given["most_calls"])


def _replay(host: _Host, records: list[dict[str, Any]], most_calls: int) -> dict[str, Any]:
    made = 0
    while True:
        state = host.settle()
        calls = state["calls"]
        if not calls or state["status"] == "failed":
            return _end(state, is_whole=made >= len(records))
        batch = records[made : made + len(calls)]
        made += len(calls)
        if made > most_calls:
            return _failed(f"it makes more than {most_calls} calls", state)
        if not batch:
            return {**state, "status": "waiting"}
        results = _match(calls, batch)
        if results is None:
            return _failed(_OTHER_CALLS, state)
        host.do("answer", results)


def _end(state: dict[str, Any], *, is_whole: bool) -> dict[str, Any]:
    if state["status"] == "waiting":
        return _failed("it waits for something that never happens", state)
    if state["status"] == "done" and not is_whole:
        return _failed(_OTHER_CALLS, state)
    return {**state, "calls": []}


class _Host:
    """What a program cannot reach: the other end of the prelude."""

    def __init__(self, context: Any, function: Any) -> None:
        self._context = context
        self._function = function

    def do(self, what: str, given: object) -> Any:
        """Let the prelude do something; return its result."""
        return json.loads(self._function(what, json.dumps(given)) or "null")

    def settle(self) -> dict[str, Any]:
        """Run until nothing is left to do without further results; return the state."""
        while self._context.execute_pending_job():
            pass
        state: dict[str, Any] = self.do("report", None)
        return state


def _match(calls: list[dict[str, Any]], batch: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the results in the order of the calls; None if they are of other calls."""
    left = list(batch)
    results = []
    for call in calls:
        for record in left:
            if record["name"] == call["name"] and record["arguments"] in (call["arguments"], None):
                left.remove(record)
                results.append(record["result"])
                break
        else:
            return None
    return results


def _failed(why: str, state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "status": "failed", "error": why, "calls": []}


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("_quickjs", LIBRARY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
