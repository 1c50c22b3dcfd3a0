// Where a chart and the feed of its windows meet: two components of one page, found by the chart's key.

/** {send, message, listener}: how to ask, the last answer, and who hears of the next. */
export function portOf(key) {
  globalThis.memplanPorts ??= new Map();
  const ports = globalThis.memplanPorts;
  if (!ports.has(key)) ports.set(key, { send: null, message: null, listener: null });
  return ports.get(key);
}
