// Builds the participant's page, one file that needs nothing else: node build.mjs FILE
import {createHash} from "node:crypto";
import {existsSync, readdirSync, readFileSync, statSync, writeFileSync} from "node:fs";
import {join} from "node:path";

import {build} from "esbuild";

process.chdir(import.meta.dirname);
const file = process.argv[2] ?? "../deploy/page/participate.html";
const hash = (text) => `sha256-${createHash("sha256").update(text).digest("base64")}`;

/** Returns the files below a folder, sorted. */
function below(folder) {
  const entries = readdirSync(folder).map((name) => join(folder, name));
  return entries.flatMap((name) => (statSync(name).isDirectory() ? below(name) : [name])).sort();
}

/** Returns a hash of everything that the page is made from, by which a test notices a page that was not built again. */
function sources() {
  const whole = createHash("sha256");
  for (const name of ["build.mjs", "package-lock.json", "tsconfig.json", ...below("src")]) {
    whole.update(`${name} ${createHash("sha256").update(readFileSync(name)).digest("hex")}\n`);
  }
  return whole.digest("hex");
}

const built = await build({
  entryPoints: ["src/main.ts"],
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  minify: true,
  legalComments: "none",
  metafile: true,
  write: false,
});

/** Returns whose code is in the page, and under which licence: each text once, as these licences ask. */
function licences(inputs) {
  const files = Object.keys(inputs).filter((name) => name.startsWith("node_modules/"));
  const packages = [...new Set(files.map((name) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(name)[1]))].sort();
  const texts = new Map();
  for (const name of packages) {
    const {version, license} = JSON.parse(readFileSync(join("node_modules", name, "package.json"), "utf8"));
    const own = files.filter((file) => file.startsWith(`node_modules/${name}/`));
    const written = existsSync(join("node_modules", name, "LICENSE"))
      ? [readFileSync(join("node_modules", name, "LICENSE"), "utf8")]
      : own.map((file) => (/^(?:\/\/.*\n)+/.exec(readFileSync(file, "utf8")) ?? [""])[0].replace(/^\/\/ ?/gm, ""));
    for (const text of written.filter((one) => one.includes("Copyright"))) {
      const [owner] = /Copyright.*/.exec(text);
      const rest = text.slice(text.indexOf(owner) + owner.length).trim();
      texts.set(rest, [...(texts.get(rest) ?? []), `${name} ${version} (${license}): ${owner}`]);
    }
  }
  const listed = [...texts].map(([text, owners]) => `${[...new Set(owners)].join("\n")}\n\n${text}`);
  return listed.join("\n\n").replaceAll("--", "- -");
}
const script = `\n${built.outputFiles[0].text.replaceAll("</script", "<\\/script")}`;
const style = `\n${readFileSync("src/page.css", "utf8")}`;
const policy = [
  "default-src 'none'",
  `script-src '${hash(script)}'`,
  `style-src '${hash(style)}'`,
  "connect-src 'self' https: http://127.0.0.1:* http://localhost:*",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
const parts = {policy, style, script, sources: sources(), licences: licences(built.metafile.inputs)};
const template = readFileSync("src/page.html", "utf8");
writeFileSync(file, template.replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]));
