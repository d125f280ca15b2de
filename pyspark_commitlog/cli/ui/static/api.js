// Asks the server. All requests are GET, and to this origin.

const RETRY_MS = 1000;
const TRIES = 5;

/** Return the response of a path below /api/; parameters that are empty are left out. Asks again while the server is busy. */
async function answered(path, parameters, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  for (let tries = 1; ; tries += 1) {
    const response = await fetch(`/api/${path}${query ? `?${query}` : ""}`, { signal, headers: { Accept: "application/json" } });
    if (response.ok) return response;
    if (response.status !== 503 || tries >= TRIES) {
      const answer = await response.json().catch(() => ({ message: `the server answers with ${response.status}` }));
      throw new Error(answer.message);
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** Return the JSON of a path below /api/. */
export async function ask(path, parameters = {}, signal = undefined) {
  return (await answered(path, parameters, signal)).json();
}

/** Return the bytes of a path below /api/. */
export async function askBlob(path, parameters = {}, signal = undefined) {
  return (await answered(path, parameters, signal)).blob();
}

/** Return a name as a part of a path. */
export function part(name) {
  return encodeURIComponent(name);
}
