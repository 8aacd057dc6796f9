// An attention engine and a K/V row store that speak the kvassay wire protocol (docs/protocol.md).
//
// Node's standard library alone:   kvassay run --adapter cmd:"node engine.mjs"
// Other partial states:            kvassay run --adapter cmd:"node engine.mjs --state o-lse-v1/2"
//
// To connect an engine of your own, keep sections 1 to 3 and the loop at the end, and replace what stands between.

import { createHash } from "node:crypto";
import { readSync, writeSync } from "node:fs";
import { parseArgs } from "node:util";

const OPTIONS = parseArgs({ options: { state: { type: "string", default: "fp32-m-l-u-v1" } } }).values;
const STATES = ["fp32-m-l-u-v1", "o-lse-v1/e", "o-lse-v1/2"];

class Rejected extends Error {
  constructor(reason, detail = "") {
    super(detail);
    this.reason = reason;
  }
}

function require(condition, reason, detail) {
  if (!condition) throw new Rejected(reason, detail);
}

// ---- 1. Wire: one JSON object a line, then the raw frames that its member "frames" announces ------------------------

let pending = Buffer.alloc(0);

/** Append what stdin has to `pending`; false at its end. */
function refill(atLeast = 1) {
  const chunks = [pending];
  for (let got = 0; got < atLeast; ) {
    const chunk = Buffer.allocUnsafe(Math.max(65536, atLeast - got));
    const count = readSync(0, chunk);
    if (count === 0) return false;
    chunks.push(chunk.subarray(0, count));
    got += count;
  }
  pending = Buffer.concat(chunks);
  return true;
}

function take(count) {
  const bytes = pending.subarray(0, count);
  pending = pending.subarray(count);
  return bytes;
}

function readMessage() {
  let end;
  while ((end = pending.indexOf(10)) < 0) if (!refill()) return null;
  const body = JSON.parse(take(end + 1).toString("utf8"));
  const frames = (body.frames ?? []).map((length) => {
    if (pending.length < length) refill(length - pending.length);
    return take(length);
  });
  return { body, frames };
}

function writeAll(bytes) {
  for (let done = 0; done < bytes.length; ) done += writeSync(1, bytes, done);
}

/** Send a message; arrays made by `tensor` travel as frames. */
function send(message) {
  const frames = [];
  const line = JSON.stringify(message, (key, value) => {
    if (!(value instanceof Tensor)) return value;
    frames.push(Buffer.from(value.values.buffer, value.values.byteOffset, value.values.byteLength));
    return { dtype: value.dtype, shape: value.shape, frame: frames.length - 1 };
  });
  const head = frames.length ? `${line.slice(0, -1)},"frames":[${frames.map((frame) => frame.length)}]}` : line;
  writeAll(Buffer.from(`${head}\n`));
  frames.forEach(writeAll);
}

// ---- 2. Tensors: lists, base64 or frames, little-endian ---------------------------------------------------------------

class Tensor {
  constructor(dtype, shape, values) {
    Object.assign(this, { dtype, shape, values });
  }
}

const SIZES = { float64: 8, float32: 4, float16: 2, bfloat16: 2, int64: 8, int32: 4, uint8: 1, bool: 1 };
const FLOATS = ["float64", "float32", "float16", "bfloat16"];
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);

/** Half precision has 10 bits of mantissa and a bias of 15; a zero exponent marks subnormal numbers. */
function halfToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const mantissa = bits & 0x3ff;
  if (exponent === 0x1f) return mantissa ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + mantissa) * 2 ** (exponent - 25) : mantissa * 2 ** -24);
}

/** bfloat16 is the upper half of a float32. */
function widen(halves) {
  const words = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) words[i] = halves[i] << 16;
  return new Float32Array(words.buffer);
}

/** The nearest value of a dtype, ties to even. */
function round(value, dtype) {
  if (dtype === "float64" || !Number.isFinite(value) || value === 0) return value;
  if (dtype === "float32") return Math.fround(value);
  const [bits, least] = dtype === "float16" ? [11, -24] : [8, -133];
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  const unit = 2 ** Math.max(exponent - bits + 1, least);
  const steps = value / unit;
  const below = Math.floor(steps);
  const up = steps - below > 0.5 || (steps - below === 0.5 && below % 2 !== 0);
  return (below + (up ? 1 : 0)) * unit;
}

function fromBytes(dtype, bytes) {
  const own = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length); // typed arrays need alignment
  switch (dtype) {
    case "float64":
      return new Float64Array(own);
    case "float32":
      return new Float32Array(own);
    case "float16":
      return Float32Array.from(new Uint16Array(own), halfToNumber);
    case "bfloat16":
      return widen(new Uint16Array(own));
    case "int64":
      return Array.from(new BigInt64Array(own), Number);
    case "int32":
      return new Int32Array(own);
    default:
      return new Uint8Array(own);
  }
}

function decode(value, frames) {
  const { dtype, shape } = value;
  if ("recipe" in value) return expand(value);
  const isBytes = "frame" in value || (typeof value.data === "string" && shape.length > 0);
  const values = isBytes
    ? fromBytes(dtype, "frame" in value ? frames[value.frame] : Buffer.from(value.data, "base64"))
    : Array.from([value.data].flat(Infinity), (number) => round(Number(number), dtype)); // Number("-Infinity") works
  if (values.length !== product(shape)) throw new Error(`${values.length} values for the shape ${shape}`);
  return new Tensor(dtype, shape, values);
}

/** Replace every tensor of a request. */
function decodeAll(value, frames) {
  if (value === null || typeof value !== "object") return value;
  if ("dtype" in value && "shape" in value && ("data" in value || "frame" in value || "recipe" in value))
    return decode(value, frames);
  if (Array.isArray(value)) return value.map((item) => decodeAll(item, frames));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, decodeAll(item, frames)]));
}

// ---- 3. Recipe hash32-v1: large inputs are computed, not sent ---------------------------------------------------------

const RECIPE_BITS = { float32: 24, float16: 11, bfloat16: 8 };
const recipes = new Map();

function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return x ^ (x >>> 16);
}

function expand(value) {
  const name = JSON.stringify(value);
  if (!recipes.has(name)) {
    if (recipes.size >= 4) recipes.delete(recipes.keys().next().value); // keep the last few: cases share them
    recipes.set(name, compute(value));
  }
  return recipes.get(name);
}

function compute({ dtype, shape, recipe }) {
  const bits = RECIPE_BITS[dtype];
  const inner = shape.slice(1).slice(-2); // pages of rows count as one axis of rows
  const first = (recipe.start ?? 0) * product(inner);
  const seed = mix(recipe.seed);
  const values = new Float32Array(product(shape));
  for (let n = 0; n < values.length; n++) {
    const i = (first + n) | 0;
    let x = (Math.imul(i ^ (i >>> 16), 0x7feb352d) + seed) | 0;
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    x ^= x >>> 16;
    values[n] = (2 * (x >>> (32 - bits)) + 1 - 2 ** bits) * 2 ** -bits;
  }
  const [heads, channels] = [inner.length > 1 ? inner[0] : shape.length > 1 ? shape[0] : 1, shape.at(-1)];
  const rows = values.length / (heads * channels);
  for (const [row, head, channel, number] of recipe.set ?? [])
    for (const r of shape.length < 3 || row === null ? Array(rows).keys() : [row])
      for (const h of shape.length < 2 || head === null ? Array(heads).keys() : [head])
        for (const c of channel === null ? Array(channels).keys() : [channel])
          values[(r * heads + h) * channels + c] = round(number, dtype);
  return new Tensor(dtype, shape, values);
}

// ---- 4. Attention of one query row ------------------------------------------------------------------------------------

/** Reject what is not legal, in the order that the chapter requires; return where the legal rows stand. */
function legalRows({ q, k, v, kv_head_of, mask, pages, ...request }) {
  const same = q.dtype === k.dtype && k.dtype === v.dtype && FLOATS.includes(q.dtype);
  require(same, "DTYPE_MISMATCH", `${q.dtype}, ${k.dtype}, ${v.dtype}`);
  const axes = pages ? 4 : 3;
  const shaped = q.shape.length === 2 && k.shape.length === axes && v.shape.length === axes;
  require(shaped, "SHAPE_MISMATCH", "wrong number of axes");
  const alike = `${k.shape.slice(0, -1)}` === `${v.shape.slice(0, -1)}` && q.shape[1] === k.shape.at(-1);
  require(alike, "SHAPE_MISMATCH", "q, k and v do not fit each other");
  require(!pages || k.shape[1] === pages.page_rows, "SHAPE_MISMATCH", "pages of another length");
  const count = pages ? pages.rows : k.shape[0];
  require((request.k_positions?.length ?? count) === count, "SHAPE_MISMATCH", "one position per row");
  const mapped = kv_head_of.length === q.shape[0] && kv_head_of.every((head) => 0 <= head && head < k.shape.at(-2));
  require(mapped, "HEAD_MAP_INVALID", `${kv_head_of}`);
  require((mask.window ?? 1) >= 1, "WINDOW_INVALID");
  if (pages) {
    const used = pages.table.slice(0, Math.ceil(count / pages.page_rows));
    require(used.length * pages.page_rows >= count, "PAGE_OUT_OF_RANGE", "the table ends before the last row");
    require(used.every((page) => 0 <= page && page < k.shape[0]), "PAGE_OUT_OF_RANGE", `${used}`);
  }
  const rows = [];
  for (let row = 0; row < count; row++) {
    const position = request.k_positions?.[row] ?? request.k_first_position + row;
    if (mask.causal && position > request.q_position) continue;
    if (mask.window !== undefined && position <= request.q_position - mask.window) continue;
    rows.push(pages ? pages.table[Math.floor(row / pages.page_rows)] * pages.page_rows + (row % pages.page_rows) : row);
  }
  return rows;
}

/** Maximum m, mass l and unnormalised output u of every query head over the legal rows. */
function reduce(request) {
  const rows = legalRows(request);
  const { q, k, v, scale, kv_head_of } = request;
  const [d, width, stride] = [k.shape.at(-1), v.shape.at(-1), k.shape.at(-2)];
  const scores = new Float64Array(rows.length);
  return kv_head_of.map((head, h) => {
    let m = -Infinity;
    rows.forEach((row, n) => {
      const start = (row * stride + head) * d;
      let sum = 0;
      for (let c = 0; c < d; c++) sum += q.values[h * d + c] * k.values[start + c];
      scores[n] = scale * sum;
      m = Math.max(m, scores[n]);
    });
    m = Math.fround(m); // l and u must refer to the m that is sent
    const u = new Float64Array(width);
    let l = 0;
    rows.forEach((row, n) => {
      const weight = Math.exp(scores[n] - m);
      const start = (row * stride + head) * width;
      l += weight;
      for (let c = 0; c < width; c++) u[c] += weight * v.values[start + c];
    });
    return { m, l, u };
  });
}

/** Heads of disjoint partitions as the head of their union; nothing merged with nothing stays nothing. */
function join(parts) {
  const m = Math.max(...parts.map((part) => part.m));
  const joined = { m, l: 0, u: new Float64Array(parts[0].u.length) };
  for (const part of parts) {
    if (part.l === 0) continue;
    const share = Math.exp(part.m - m);
    joined.l += part.l * share;
    part.u.forEach((number, c) => (joined.u[c] += number * share));
  }
  return joined;
}

const output = ({ l, u }) => Array.from(u, (number) => (l > 0 ? number / l : 0));
const logMass = ({ m, l }) => (l > 0 ? m + Math.log(l) : -Infinity);
const vector = (numbers) => new Tensor("float32", [numbers.length], Float32Array.from(numbers));
const matrix = (rows, width) => new Tensor("float32", [rows.length, width], Float32Array.from(rows.flat()));

function writeState(heads, schema, width) {
  if (schema === "fp32-m-l-u-v1") {
    const u = heads.map((head) => Array.from(head.u));
    return { schema, m: vector(heads.map(({ m }) => m)), l: vector(heads.map(({ l }) => l)), u: matrix(u, width) };
  }
  const base = schema.endsWith("/2") ? 2 : "e";
  const unit = base === 2 ? Math.LN2 : 1;
  const lse = vector(heads.map((head) => logMass(head) / unit));
  return { schema: "o-lse-v1", base, o: matrix(heads.map(output), width), lse };
}

function readState(state) {
  const body = state.u ?? state.o;
  const [count, width] = body.shape;
  const masses = state.u ? [state.m, state.l] : [state.lse];
  const shaped = body.shape.length === 2 && masses.every(({ shape }) => `${shape}` === `${count}`);
  require(shaped, "SHAPE_MISMATCH", "the members of a state differ in heads");
  return Array.from({ length: count }, (_, h) => {
    const u = Float64Array.from(body.values.slice(h * width, (h + 1) * width));
    if (state.u) return { m: state.m.values[h], l: state.l.values[h], u };
    const m = state.lse.values[h] * (state.base === 2 ? Math.LN2 : 1); // an output is u of a mass of 1 at m = LSE
    return { m, l: m === -Infinity ? 0 : 1, u };
  });
}

function mergeStates(states) {
  const members = { "fp32-m-l-u-v1": ["m", "l", "u"], "o-lse-v1": ["base", "o", "lse"] };
  for (const state of states) {
    const missing = (members[state.schema] ?? []).filter((member) => !(member in state));
    require(missing.length === 0, "STATE_INCOMPLETE", `a state lacks ${missing}`);
  }
  const schemas = new Set(states.map(({ schema, base }) => (schema === "o-lse-v1" ? `${schema}/${base}` : schema)));
  const [schema] = schemas;
  require(schemas.size === 1 && STATES.includes(schema), "STATE_SCHEMA_MISMATCH", [...schemas].join(", "));
  const masses = states.flatMap(({ m, l, lse }) => (lse ? [lse] : [m, l]));
  require(masses.every(({ dtype }) => SIZES[dtype] >= 4), "DTYPE_MISMATCH", "softmax mass in less than float32");
  const shapes = new Set(states.map(({ u, o }) => `${(u ?? o).shape}`));
  const parts = states.map(readState);
  require(shapes.size === 1, "SHAPE_MISMATCH", "states of different shapes");
  const width = (states[0].u ?? states[0].o).shape[1];
  return writeState(parts[0].map((_, h) => join(parts.map((heads) => heads[h]))), schema, width);
}

// ---- 5. Rows under their identity -------------------------------------------------------------------------------------

let stored = new Map();
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** JSON text in which equal records are equal, whatever the order of their members. */
function canonical(value) {
  const sorted = (key, item) =>
    item?.constructor === Object ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1))) : item;
  return JSON.stringify(value, sorted);
}

/** One key a row: everything that the rows must share, then the tokens up to this row, each step hashed anew. */
function rowKeys({ tokens, ...record }) {
  let key = sha256(canonical(record));
  return tokens.map((token) => (key = sha256(`${key} ${token}`)));
}

function put({ record, data }) {
  require(data.shape[0] === record.tokens.length, "SHAPE_MISMATCH", "one row per token");
  const bytes = data.shape[1];
  let fresh = 0;
  rowKeys(record).forEach((key, row) => {
    if (stored.has(key)) return;
    stored.set(key, data.values.slice(row * bytes, (row + 1) * bytes));
    fresh += 1;
  });
  return { outcome: fresh ? "stored" : "resident", rows: record.tokens.length };
}

function get({ record }) {
  const keys = rowKeys(record);
  const missing = keys.findIndex((key) => !stored.has(key));
  const found = (missing < 0 ? keys : keys.slice(0, missing)).map((key) => stored.get(key));
  if (found.length === 0) return { outcome: "miss", rows: 0 };
  const data = new Tensor("uint8", [found.length, found[0].length], Uint8Array.from(found.flatMap((row) => [...row])));
  return { outcome: "hit", rows: found.length, data };
}

// ---- 6. Canonical digests ---------------------------------------------------------------------------------------------

/** Fields of each kind of identity, in the order of the encoding; spec/identity.md defines it. */
const KINDS = {
  row:
    "model_artifact_sha256 checkpoint_generation adapter_set_sha256 logical_cache_abi_sha256 layer kv_head position " +
    "position_contract_sha256 rope_config_sha256 cache_generation publication_generation tenant_namespace " +
    "namespace_generation",
  upstream:
    "logical_cache_abi_sha256 cache_layout_manifest_sha256 visibility_policy_manifest_sha256 model_artifact_sha256 " +
    "checkpoint_generation adapter_set_sha256 position_contract_sha256 rope_config_sha256 tenant_namespace " +
    "namespace_generation request_generation",
  tensor: "layers query_heads kv_heads first_position positions channels k_dtype v_dtype kv_head_of",
  source:
    "upstream_sha256 tensor_sha256 cache_generation publication_generation first_position committed_frontier",
  chunk: "source_sha256 first_layer layers first_kv_head kv_heads first_position positions",
  replica:
    "chunk_sha256 tier allocation_generation replica_generation authority_epoch codec layout payload_sha256",
  support: "positions",
};

const u32 = (number) => Buffer.from([number >>> 24, number >>> 16, number >>> 8, number]);
const u64 = (number) => Buffer.concat([u32(Math.floor(number / 2 ** 32)), u32(number % 2 ** 32)]);
const text = (value) => Buffer.concat([u32(Buffer.byteLength(value)), Buffer.from(value)]);
const tagged = (tag, ...bytes) => Buffer.concat([Buffer.from([tag]), ...bytes]);

function encodeField(name, value) {
  if (value === null) return tagged(0);
  if (typeof value === "number") return tagged(1, u64(value));
  if (Array.isArray(value)) return tagged(4, u32(value.length), ...value.map(u64));
  return name.endsWith("_sha256") ? tagged(3, Buffer.from(value, "hex")) : tagged(2, text(value));
}

function digest({ kind, ...fields }) {
  const names = KINDS[kind].split(" ");
  const encoded = names.flatMap((name) => [text(name), encodeField(name, fields[name])]);
  const bytes = Buffer.concat([Buffer.from("kvassay/identity/v1\0"), text(kind), u32(names.length), ...encoded]);
  return { sha256: sha256(bytes), canonical: bytes.toString("hex") };
}

// ---- 7. Ops and the loop ----------------------------------------------------------------------------------------------

const OPS = {
  "attention.dense": (request) => {
    const heads = reduce(request);
    require(heads[0].l > 0, "NO_LEGAL_ROWS", "the mask leaves no row");
    return { out: matrix(heads.map(output), request.v.shape.at(-1)), lse: vector(heads.map(logMass)) };
  },
  "attention.partial": (request) => ({ state: writeState(reduce(request), OPTIONS.state, request.v.shape.at(-1)) }),
  "attention.merge": ({ states }) => ({ state: mergeStates(states) }),
  "identity.key": ({ record }) => ({ key: rowKeys(record).at(-1) }),
  "identity.put": put,
  "identity.get": get,
  "identity.digest": digest,
};

const HELLO = {
  protocol: 1,
  engine: { name: "javascript-example", version: "1", language: `JavaScript, node ${process.versions.node}` },
  ops: Object.keys(OPS),
  profiles: ["dense", "partial", "merge", "diagnosis", "keys", "key-strings", "digests"],
  states: [OPTIONS.state, ...STATES.filter((state) => state !== OPTIONS.state)],
  capabilities: { "attention.paged": true },
  frames: true,
  recipes: ["hash32-v1"],
};

function answer({ call, id, request }, frames) {
  if (!(call in OPS)) return { id, unsupported: {} };
  try {
    return { id, result: OPS[call](decodeAll(request, frames)) };
  } catch (error) {
    if (error instanceof Rejected) return { id, rejected: { reason: error.reason, detail: error.message } };
    return { id, error: { detail: String(error.stack) } };
  }
}

for (let message; (message = readMessage()) !== null; ) {
  const { body, frames } = message;
  if ("hello" in body) send({ hello: HELLO });
  else if ("open" in body) {
    stored = new Map();
    send({ opened: {} });
  } else if ("close" in body) break;
  else send(answer(body, frames));
}
