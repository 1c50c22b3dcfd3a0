// The page's data block → typed arrays and texts.

import { columnOf, inUnits, placesOf, textReader } from "../../../plotting/frontend/columns.js";

/** The plan of the page; its columns were packed as one run of bytes, compressed, in base64. */
async function readPlan() {
  const plan = JSON.parse(document.getElementById("data").textContent);
  const bytes = await inflate(plan.blob);
  const column = (entry) => columnOf(bytes, 0, entry);
  for (const name of ["start", "end", "offset", "size", "profileStart", "profileLive", "profileHigh"]) {
    plan[name] = inUnits(column(plan[name]), plan[name][3]);
  }
  for (const line of plan.lines) {
    for (const name of ["start", "bytes"]) line[name] = inUnits(column(line[name]), line[name][3]);
  }
  plan.count = plan.start.length;
  plan.owner = plan.owner && column(plan.owner);
  for (const colouring of plan.colourings) colouring.index = column(colouring.index);
  // Of many buffers only the largest have their names.
  const { ends, text, ids } = plan.names;
  plan.nameOf = textReader(column(ends), column(text), (id) => `buffer ${id}`, ids && placesOf(column(ids)));
  for (const fact of plan.facts) fact.index = column(fact.index);
  return plan;
}

async function inflate(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** What is known of a buffer, a line each: who made it, in which module, at which line of code. */
function factsOf(plan, buffer) {
  return plan.facts.map((fact) => fact.values[fact.index[buffer]]).filter(Boolean);
}
