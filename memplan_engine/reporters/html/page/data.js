// The page's data block → typed arrays and texts.

const TYPES = { u1: Uint8Array, i4: Int32Array, u4: Uint32Array, f8: Float64Array };
const UTF8 = new TextDecoder();

/** The plan of the page; its columns were packed as one run of bytes, compressed, in base64. */
async function readPlan() {
  const plan = JSON.parse(document.getElementById("data").textContent);
  const bytes = await inflate(plan.blob);
  const column = ([type, at, length]) => new TYPES[type](bytes, at, length);
  for (const name of ["start", "end", "offset", "size", "profileStart", "profileLive", "profileHigh"]) {
    plan[name] = inUnits(column(plan[name]), plan[name][3]);
  }
  if (plan.held) {
    for (const name of ["start", "bytes"]) plan.held[name] = inUnits(column(plan.held[name]), plan.held[name][3]);
  }
  plan.count = plan.start.length;
  plan.owner = plan.owner && column(plan.owner);
  for (const colouring of plan.colourings) colouring.index = column(colouring.index);
  plan.nameOf = textsOf(plan.names, column);
  for (const fact of plan.facts) fact.index = column(fact.index);
  return plan;
}

async function inflate(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

function inUnits(column, unit) {
  const values = new Float64Array(column);
  if (unit !== 1) for (let i = 0; i < values.length; i += 1) values[i] *= unit;
  return values;
}

/** buffer → its name, decoded when asked for; of many only the largest have theirs. */
function textsOf(entry, column) {
  const [ends, text] = [column(entry.ends), column(entry.text)];
  const places = entry.ids && new Map(Array.from(column(entry.ids), (id, place) => [id, place]));
  return (buffer) => {
    const place = places ? places.get(buffer) : buffer;
    if (place === undefined) return `buffer ${buffer}`;
    return UTF8.decode(text.subarray(place === 0 ? 0 : ends[place - 1], ends[place]));
  };
}

function ownerOf(plan, rect) {
  return plan.owner ? plan.owner[rect] : rect;
}

/** What is known of a buffer, a line each: who made it, in which module, at which line of code. */
function factsOf(plan, buffer) {
  return plan.facts.map((fact) => fact.values[fact.index[buffer]]).filter(Boolean);
}
