// How numbers and times are written.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const fine = new Intl.NumberFormat('en', { maximumFractionDigits: 1 })

export function rate(value: number | undefined | null): string {
  if (value === undefined || value === null) return '–'
  return value >= 100 ? whole.format(value) : fine.format(value)
}

export function millis(value: number | undefined | null): string {
  if (value === undefined || value === null) return '–'
  if (value >= 1000) return `${fine.format(value / 1000)} s`
  return value >= 10 ? `${whole.format(value)} ms` : `${fine.format(value)} ms`
}

export function percent(part: number): string {
  return `${fine.format(part * 100)} %`
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds))
  const [d, h, m] = [Math.floor(s / 86_400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60]
  if (d > 0) return `${d} d ${h} h`
  if (h > 0) return `${h} h ${m} min`
  if (m > 0) return `${m} min ${s % 60} s`
  return `${s} s`
}

/** Minutes and seconds, for countdowns: they must not jump in width. */
export function clock(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds))
  const part = (value: number) => String(value).padStart(2, '0')
  if (s >= 3600) return `${Math.floor(s / 3600)}:${part(Math.floor(s / 60) % 60)}:${part(s % 60)}`
  return `${Math.floor(s / 60)}:${part(s % 60)}`
}

/** Local time as an operator compares it with a log: day only when it is not today. */
export function moment(text: string | number | undefined | null): string {
  if (text === undefined || text === null || text === '') return '–'
  const at = new Date(text)
  if (Number.isNaN(at.getTime())) return String(text)
  const time = at.toLocaleTimeString('en-GB')
  const today = at.toDateString() === new Date().toDateString()
  const part = (value: number) => String(value).padStart(2, '0')
  return today ? time : `${at.getFullYear()}-${part(at.getMonth() + 1)}-${part(at.getDate())} ${time}`
}

export function place(address: string, port: number | null | undefined): string {
  const host = address.includes(':') ? `[${address}]` : address
  return port ? `${host}:${port}` : address
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${whole.format(n)} ${n === 1 ? one : many}`
}
