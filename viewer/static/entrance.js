// The page's half of viewer/server/exchange.py: that both know the token is shown, and the token is never said.

const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export const nonce = () => hex(crypto.getRandomValues(new Uint8Array(32)));

export async function proof(token, side, hello, answer) {
  const text = new TextEncoder();
  const key = await crypto.subtle.importKey("raw", text.encode(token), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return hex(await crypto.subtle.sign("HMAC", key, text.encode(`anchorleg viewer ${side} ${hello} ${answer}`)));
}
