// The OpenAPI description, for people: operations first, then the schemas they refer to.
function make(kind, text = "", ...children) {
  const element = document.createElement(kind);
  element.textContent = text;
  element.append(...children);
  return element;
}

const nameOf = (reference) => reference.split("/").at(-1);

// A schema in a few words; what it refers to stands further down.
function inWords(schema) {
  if (schema.$ref) return nameOf(schema.$ref);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.map(inWords).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") {
    const { minItems, maxItems } = schema;
    const count = minItems === maxItems ? maxItems : maxItems ? `${minItems ?? 0} to ${maxItems}` : "";
    return `list of ${count ? `${count} × ` : ""}${inWords(schema.items ?? {})}`;
  }
  if (schema.type === "object" && schema.properties) return `{${Object.entries(schema.properties)
    .map(([name, inner]) => `${name}: ${inWords(inner)}`).join(", ")}}`;
  const range = schema.maximum === undefined ? "" : ` from ${schema.minimum} to ${schema.maximum}`;
  return (schema.type ?? "anything") + range;
}

function fields(schema) {
  const list = make("dl");
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const needed = (schema.required ?? []).includes(name);
    list.append(
      make("dt", "", make("code", name), make("span", ` ${inWords(inner)}${needed ? ", needed" : ""}`)),
      make("dd", inner.description ?? ""),
    );
    list.lastChild.className = "quiet";
  }
  return list;
}

function operation(path, verb, described) {
  const box = make("details");
  box.className = "card";
  box.open = path === "/predict";
  const title = make("summary", "", make("span", verb.toUpperCase()), make("code", path));
  title.firstChild.className = "verb";
  box.append(title, make("p", described.description));
  for (const parameter of described.parameters ?? []) {
    box.append(make("p", "", make("code", `?${parameter.name}=`), make("span", ` ${inWords(parameter.schema)}`)));
  }
  const body = described.requestBody?.content["application/json"].schema;
  if (body) box.append(make("p", "", make("strong", "Body: "), link(body)));
  const answers = make("dl");
  for (const [status, answer] of Object.entries(described.responses)) {
    const schema = Object.values(answer.content ?? {})[0]?.schema ?? {};
    answers.append(make("dt", "", make("code", status), make("span", ` ${answer.description} `), link(schema)));
  }
  box.append(make("strong", "Answers"), answers);
  if (path === "/predict") {
    const wish = '{"client": 3, "inputs": […], "budget": "60%"}';
    box.append(make("pre", `curl --json '${wish}' ${location.origin}/predict`));
  }
  return box;
}

function link(schema) {
  if (!schema.$ref) return make("span", schema.type ? inWords(schema) : "");
  const name = nameOf(schema.$ref);
  return Object.assign(make("a", name), { href: `#${name}` });
}

const api = await (await fetch("/openapi.json")).json();
document.getElementById("about").textContent = `${api.info.summary}. ${api.info.title} ${api.info.version}`;
for (const [path, verbs] of Object.entries(api.paths)) {
  for (const [verb, described] of Object.entries(verbs)) {
    document.getElementById("operations").append(operation(path, verb, described));
  }
}
for (const [name, schema] of Object.entries(api.components.schemas)) {
  const title = Object.assign(make("h2", name), { id: name });
  document.getElementById("schemas").append(title, make("p", schema.description ?? ""), fields(schema));
}
