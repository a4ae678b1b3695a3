// The reference: reads /openapi.json and shows it. Text only ever enters the page as text, never as markup.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const SCHEMA_MAX_DEPTH = 6;

/** An element with attributes and children; strings become text nodes. */
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Text in which `code` stands between back-ticks. */
function prose(text) {
  return (text ?? "").split("`").map((piece, index) => (index % 2 ? el("code", {}, piece) : piece));
}

/** Paragraphs of a text, which blank lines separate; the browser joins the lines of each. */
function paragraphs(text, attributes = {}) {
  return text.trim().split(/\n\s*\n/).map((paragraph) => el("p", attributes, ...prose(paragraph)));
}

function resolve(spec, schema) {
  return schema?.$ref ? spec.components.schemas[schema.$ref.split("/").pop()] : schema ?? {};
}

function typeName(spec, schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const branches = schema.anyOf ?? schema.oneOf;
  if (branches) return branches.map((branch) => typeName(spec, branch)).join(" | ");
  if (schema.type === "array") return `array of ${typeName(spec, schema.items ?? {})}`;
  return schema.format ? `${schema.type} (${schema.format})` : schema.type ?? "any";
}

function limits(schema) {
  const flat = Object.assign({}, schema, ...(schema.anyOf ?? []));
  const range = (low, high, unit) =>
    low === undefined && high === undefined ? [] : [`${low ?? ""}–${high ?? ""}${unit}`];
  return [
    ...range(flat.minimum, flat.maximum, ""),
    ...range(flat.minLength, flat.maxLength, " characters"),
    ...range(flat.minItems, flat.maxItems, " entries"),
    ...(schema.default === undefined || schema.default === null ? [] : [`default ${JSON.stringify(schema.default)}`]),
  ].join(", ");
}

/** The objects inside a schema, so that the reader can unfold them. */
function inner(spec, schema) {
  const found = [schema, schema.items, schema.additionalProperties, ...(schema.anyOf ?? schema.oneOf ?? [])];
  return found.map((part) => resolve(spec, part)).find((part) => part?.properties) ?? null;
}

function row(spec, name, schema, required, depth) {
  const nested = depth < SCHEMA_MAX_DEPTH ? inner(spec, schema) : null;
  return el("tr", {},
    el("td", {}, el("code", {}, name), required ? "" : el("span", { class: "quiet" }, " optional")),
    el("td", {},
      el("code", {}, typeName(spec, schema)), " ", el("span", { class: "quiet" }, limits(schema)),
      el("div", {}, ...prose(schema.description)),
      nested && el("details", {}, el("summary", {}, "fields"), fields(spec, nested, depth + 1))));
}

function fields(spec, schema, depth = 0) {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties).map(([name, value]) => row(spec, name, value, required.has(name), depth));
  return el("table", {}, el("tbody", {}, ...rows));
}

function shape(spec, schema) {
  const object = inner(spec, schema);
  return object ? fields(spec, object) : el("p", {}, el("code", {}, typeName(spec, schema)));
}

/** A value that a schema accepts, for the curl example. */
function example(spec, schema, depth = 0) {
  const found = resolve(spec, schema);
  if (found.examples) return found.examples[0];
  if (found.default !== undefined) return found.default;
  if (found.const !== undefined) return found.const;
  if (found.enum) return found.enum[0];
  const branches = found.anyOf ?? found.oneOf;
  if (branches) return example(spec, branches[0], depth);
  if (found.properties && depth < SCHEMA_MAX_DEPTH) {
    const needed = (found.required ?? []).map((name) => [name, example(spec, found.properties[name], depth + 1)]);
    return Object.fromEntries(needed);
  }
  const plain = { integer: found.minimum ?? 1, number: found.minimum ?? 1, boolean: true, array: [], object: {} };
  return plain[found.type] ?? "…";
}

function curl(spec, path, method, operation) {
  const lines = [`curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}${location.origin}${path}`];
  const scheme = Object.keys(operation.security[0] ?? {})[0];
  if (scheme) lines.push(`-H "Authorization: Bearer $${scheme.toUpperCase()}"`);
  const body = operation.requestBody?.content["application/json"];
  if (body) {
    const json = JSON.stringify(example(spec, body.schema)).replaceAll("'", "'\\''");
    lines.push("-H 'Content-Type: application/json'", `-d '${json}'`);
  }
  return lines.join(" \\\n  ");
}

function access(operation) {
  const keys = operation.security.flatMap((scheme) => Object.keys(scheme));
  return keys.length ? keys.join(" or ").replaceAll("_", " ") : "no key";
}

function responses(spec, operation) {
  return Object.entries(operation.responses).map(([status, response]) => {
    // Every problem has the same fields; they are told once, at the top.
    const schema = response.content?.["application/json"]?.schema;
    const object = schema ? inner(spec, schema) : null;
    return el("tr", {},
      el("td", {}, el("code", {}, status)),
      el("td", {}, ...prose(response.description),
        object && el("details", {}, el("summary", {}, "fields"), fields(spec, object, 1))));
  });
}

function article(spec, path, method, operation) {
  const body = operation.requestBody?.content["application/json"];
  const parameters = operation.parameters.map((parameter) =>
    row(spec, `${parameter.name} (${parameter.in})`,
      { ...parameter.schema, description: parameter.description }, parameter.required, 0));
  return el("article", { id: operation.operationId },
    el("span", { class: "access" }, access(operation)),
    el("h3", {}, el("span", { class: `method ${method}` }, method), " ", el("span", { class: "path" }, path)),
    el("p", {}, operation.summary),
    ...(operation.description ? paragraphs(operation.description, { class: "quiet" }) : []),
    el("pre", {}, curl(spec, path, method, operation)),
    ...(parameters.length ? [el("h4", {}, "Parameters"), el("table", {}, ...parameters)] : []),
    ...(body ? [el("h4", {}, "Body"), shape(spec, body.schema)] : []),
    el("h4", {}, "Answers"), el("table", {}, ...responses(spec, operation)));
}

function operations(spec, tag) {
  return Object.entries(spec.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]?.tags.includes(tag)).map((method) => [path, method, item[method]]));
}

function link([path, method, operation]) {
  const words = `${path} ${method} ${operation.summary}`.toLowerCase();
  return el("a", { href: `#${operation.operationId}`, "data-words": words, title: operation.summary },
    el("span", { class: `method ${method}` }, method), " ", path);
}

function show(spec) {
  const content = document.getElementById("content");
  const index = document.getElementById("index");
  content.replaceChildren(
    el("h1", {}, `${spec.info.title} `, el("span", { class: "quiet" }, spec.info.version)),
    ...paragraphs(spec.info.description),
    el("p", {}, el("a", { href: "/openapi.json" }, "OpenAPI 3.1 document")),
    el("details", {}, el("summary", {}, "fields of a problem"), fields(spec, spec.components.schemas.Problem)));
  for (const tag of spec.tags) {
    const found = operations(spec, tag.name);
    index.append(el("section", {}, el("h2", {}, tag.name), ...found.map(link)));
    content.append(el("section", {}, el("h2", {}, tag.name), el("p", { class: "quiet" }, tag.description),
      ...found.map(([path, method, operation]) => article(spec, path, method, operation))));
  }
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const entry of document.querySelectorAll("#index a")) entry.hidden = !entry.dataset.words.includes(wanted);
});

fetch("/openapi.json")
  .then((response) => (response.ok ? response.json() : Promise.reject(new Error(`status ${response.status}`))))
  .then(show)
  .catch((error) => {
    const sentence = `The document could not be read (${error.message}). Reload the page.`;
    document.getElementById("content").replaceChildren(el("p", {}, sentence));
  });
